//! Unigram: the most probable segmentation of a text (Viterbi).

use super::vocabulary::Vocabulary;

/// Vocabulary with log probabilities.
#[derive(Debug)]
pub(super) struct Unigram {
    pub(super) scores: Vec<f64>,
    pub(super) unknown: Option<u32>,
    /// Score of an unknown character.
    pub(super) unknown_score: f64,
    /// Byte fallback: the token of each byte.
    pub(super) bytes: Option<Box<[u32; 256]>>,
}

/// Best segmentation that ends at a position.
#[derive(Clone, Copy)]
struct BestPath {
    score: f64,
    from: usize,
    id: Option<u32>,
}

impl Unigram {
    /// Appends the tokens of a text.
    pub(super) fn encode(&self, vocab: &Vocabulary, text: &str, out: &mut Vec<u32>) {
        let none = BestPath {
            score: f64::NEG_INFINITY,
            from: 0,
            id: None,
        };
        let mut best = vec![none; text.len() + 1];
        best[0].score = 0.0;
        for (at, char) in text.char_indices() {
            let here = best[at].score;
            let len = char.len_utf8();
            let mut has_single = false;
            for end in text[at..].char_indices().map(|(i, c)| i + c.len_utf8()) {
                if end > vocab.longest() {
                    break;
                }
                let id = vocab.id(&text.as_bytes()[at..at + end]);
                let Some((id, &score)) = id.and_then(|i| Some((i, self.scores.get(i as usize)?)))
                else {
                    continue;
                };
                has_single |= end == len;
                let target = &mut best[at + end];
                if here + score > target.score {
                    *target = BestPath {
                        score: here + score,
                        from: at,
                        id: Some(id),
                    };
                }
            }
            let target = &mut best[at + len];
            if !has_single && here + self.unknown_score > target.score {
                *target = BestPath {
                    score: here + self.unknown_score,
                    from: at,
                    id: None,
                };
            }
        }
        let mut pieces = Vec::new();
        let mut at = text.len();
        while at > 0 {
            let BestPath { from, id, .. } = best[at];
            pieces.push((from..at, id));
            at = from;
        }
        let mut was_unknown = false;
        for (range, id) in pieces.into_iter().rev() {
            match (id, &self.bytes) {
                (Some(id), _) => out.push(id),
                (None, Some(ids)) => {
                    let bytes = &text.as_bytes()[range];
                    out.extend(bytes.iter().map(|&b| ids[usize::from(b)]));
                }
                // Consecutive unknown characters become one token.
                (None, None) if was_unknown => {}
                (None, None) => out.extend(self.unknown),
            }
            was_unknown = id.is_none();
        }
    }
}
