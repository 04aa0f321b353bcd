//! The tensors that a config requires.

use super::{Architecture, Config};
use crate::file::Model;
use crate::{Error, Result};

impl Config {
    /// All required tensors with their shapes, by the names that [`Config::weight`] takes.
    pub fn weights(&self) -> Vec<(String, Vec<usize>)> {
        let mut all = vec![("token_embd.weight".to_owned(), vec![self.vocab, self.width])];
        let is_bert = self.architecture == Architecture::Bert;
        if is_bert {
            for kind in ["weight", "bias"] {
                all.push((format!("token_embd_norm.{kind}"), vec![self.width]));
            }
        } else {
            all.push(("output_norm.weight".to_owned(), vec![self.width]));
            if !self.tied_head {
                all.push(("output.weight".to_owned(), vec![self.vocab, self.width]));
            }
        }
        for layer in 0..self.layers {
            for (name, shape) in self.layer_weights() {
                all.push((format!("blk.{layer}.{name}"), shape));
            }
        }
        all
    }

    fn layer_weights(&self) -> Vec<(&'static str, Vec<usize>)> {
        let Self { width, ffn, .. } = *self;
        let (queries, keys) = (self.query_width(), self.key_width());
        let mut all = vec![
            ("attn_q.weight", vec![queries, width]),
            ("attn_k.weight", vec![keys, width]),
            ("attn_v.weight", vec![keys, width]),
            ("attn_output.weight", vec![width, queries]),
            ("ffn_up.weight", vec![ffn, width]),
            ("ffn_down.weight", vec![width, ffn]),
        ];
        if self.architecture == Architecture::Bert {
            all.extend([
                ("attn_output_norm.weight", vec![width]),
                ("attn_output_norm.bias", vec![width]),
                ("layer_output_norm.weight", vec![width]),
                ("layer_output_norm.bias", vec![width]),
            ]);
        } else {
            all.extend([
                ("attn_norm.weight", vec![width]),
                ("ffn_norm.weight", vec![width]),
            ]);
        }
        if self.is_gated {
            all.push(("ffn_gate.weight", vec![ffn, width]));
        }
        if self.qkv_bias {
            all.extend([
                ("attn_q.bias", vec![queries]),
                ("attn_k.bias", vec![keys]),
                ("attn_v.bias", vec![keys]),
            ]);
        }
        if self.output_bias {
            all.push(("attn_output.bias", vec![width]));
        }
        if self.ffn_bias {
            all.extend([("ffn_up.bias", vec![ffn]), ("ffn_down.bias", vec![width])]);
        }
        if self.qk_norm {
            all.extend([
                ("attn_q_norm.weight", vec![self.head_dim]),
                ("attn_k_norm.weight", vec![self.head_dim]),
            ]);
        }
        if self.post_norms {
            all.extend([
                ("post_attention_norm.weight", vec![width]),
                ("post_ffw_norm.weight", vec![width]),
            ]);
        }
        all
    }

    /// Fails unless the model has all required tensors with the right shapes.
    pub(super) fn check_weights(&self, model: &Model) -> Result<()> {
        for (name, shape) in self.weights() {
            let tensor = self.weight(model, &name)?;
            if tensor.shape() != shape {
                return Err(Error::BadTensor {
                    path: model.path().display().to_string(),
                    name,
                    reason: format!("has shape {:?} instead of {shape:?}", tensor.shape()),
                });
            }
        }
        if self.architecture == Architecture::Bert {
            self.check_table(model, "position_embd.weight", self.context)?;
            self.check_table(model, "token_types.weight", 1)?;
        }
        Ok(())
    }

    /// Fails unless a table has at least `rows` rows.
    fn check_table(&self, model: &Model, name: &str, rows: usize) -> Result<()> {
        let tensor = model.tensor(name)?;
        match *tensor.shape() {
            [n, width] if n >= rows && width == self.width => Ok(()),
            _ => Err(Error::BadTensor {
                path: model.path().display().to_string(),
                name: name.to_owned(),
                reason: format!(
                    "has shape {:?} instead of at least {rows} rows of {}",
                    tensor.shape(),
                    self.width
                ),
            }),
        }
    }
}
