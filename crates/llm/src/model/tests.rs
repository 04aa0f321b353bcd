//! Tests of what needs no large model: every family on random weights, against itself.
