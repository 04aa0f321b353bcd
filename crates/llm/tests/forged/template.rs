//! Chat templates of the families, as published by their authors, with their special tokens.

/// A family's template.
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) template: &'static str,
    /// Texts of special tokens; the first ones are `bos_token` and `eos_token`.
    pub(crate) special: &'static [&'static str],
    /// Added tokens that are not special: parsed in any text.
    pub(crate) added: &'static [&'static str],
    /// Whether the template takes a system message.
    pub(crate) has_system: bool,
}

pub(crate) const FAMILIES: [Family; 8] = [
    Family {
        name: "ChatML",
        template: "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful AI assistant.<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
        special: &["<|im_start|>", "<|im_end|>", "<|endoftext|>"],
        added: &[],
        has_system: true,
    },
    Family {
        name: "Llama 3",
        template: "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
        special: &[
            "<|begin_of_text|>",
            "<|end_of_text|>",
            "<|start_header_id|>",
            "<|end_header_id|>",
            "<|eot_id|>",
        ],
        added: &[],
        has_system: true,
    },
    Family {
        name: "Gemma",
        template: "{{ bos_token }}{%- if messages[0]['role'] == 'system' -%}{%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}{%- set loop_messages = messages[1:] -%}{%- else -%}{%- set first_user_prefix = '' -%}{%- set loop_messages = messages -%}{%- endif -%}{%- for message in loop_messages -%}{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{%- endif -%}{%- if (message['role'] == 'assistant') -%}{%- set role = 'model' -%}{%- else -%}{%- set role = message['role'] -%}{%- endif -%}{{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else '') }}{%- if message['content'] is string -%}{{ message['content'] | trim }}{%- elif message['content'] is iterable -%}{{ raise_exception('text only') }}{%- endif -%}{{ '<end_of_turn>\n' }}{%- endfor -%}{%- if add_generation_prompt -%}{{'<start_of_turn>model\n'}}{%- endif -%}",
        special: &[
            "<bos>",
            "<eos>",
            "<start_of_turn>",
            "<end_of_turn>",
            "<unused0>",
        ],
        added: &[],
        has_system: true,
    },
    Family {
        name: "Phi-3",
        template: "{% for message in messages %}{{'<|' + message['role'] + '|>' + '\n' + message['content'] + '<|end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}",
        special: &[
            "<s>",
            "<|endoftext|>",
            "<|system|>",
            "<|user|>",
            "<|assistant|>",
            "<|end|>",
        ],
        added: &[],
        has_system: true,
    },
    Family {
        name: "Mistral",
        template: "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' ' + message['content'] | trim + eos_token }}{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}",
        special: &["<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]"],
        added: &[],
        has_system: false,
    },
    Family {
        name: "Qwen3",
        template: "{%- if messages[0].role == 'system' %}{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}{%- endif %}{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}{%- for message in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}{%- if ns.multi_step_tool and message.role == \"user\" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}{%- set ns.multi_step_tool = false %}{%- set ns.last_query_index = index %}{%- endif %}{%- endfor %}{%- for message in messages %}{%- if (message.role == \"user\") or (message.role == \"system\" and not loop.first) %}{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}{%- elif message.role == \"assistant\" %}{%- set content = message.content %}{%- set reasoning_content = '' %}{%- if '</think>' in message.content %}{%- set content = message.content.split('</think>')[-1].lstrip('\n') %}{%- set reasoning_content = message.content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}{%- endif %}{%- if loop.index0 > ns.last_query_index %}{{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}{%- else %}{{- '<|im_start|>' + message.role + '\n' + content }}{%- endif %}{{- '<|im_end|>\n' }}{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}",
        special: &[
            "<|endoftext|>",
            "<|im_end|>",
            "<|im_start|>",
            "<|vision_start|>",
        ],
        added: &["<think>", "</think>", "<tool_response>", "</tool_response>"],
        has_system: true,
    },
    // A vocabulary in which two special tokens share a prefix.
    Family {
        name: "thoughts and </s>",
        template: "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content.split('</think>')[-1] }}{{ eos_token }}{% endfor %}",
        special: &["<s>", "</s>"],
        added: &[],
        has_system: true,
    },
    // Other text operations of templates.
    Family {
        name: "filters",
        template: "{{ bos_token }}{% for m in messages %}{{ '<|' ~ m.role ~ '|>' }}{{ m | tojson }}{{ m.content | tojson(indent=2) }}{{ m.content | trim | lower }}{{ m.content.upper() | lower }}{{ m.content | replace('XX', '') }}{{ m.content[1:] }}{{ m.content[:-1] }}{{ m.content | list | join }}{{ m.content | reverse | reverse }}{{ m.content.split('XX') | join }}{{ (m.content ~ m.content) | title | lower }}{{ m.content.strip() + eos_token }}{% endfor %}",
        special: &["<s>", "</s>", "<|system|>", "<|user|>", "<|assistant|>"],
        added: &[],
        has_system: true,
    },
];
