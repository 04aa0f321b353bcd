//! The legacy quants: blocks of 32 weights with one scale.
//!
//! Nibble `i` of the 16 bytes that hold low bits is weight `i`, the upper nibble weight `i + 16`. Fifth bits
//! are a 32-bit word, bit `i` for weight `i`.

use super::{half, to_half};

/// The value with the largest magnitude.
fn largest_by_magnitude(x: &[f32]) -> f32 {
    let mut max = (0.0, 0.0);
    for &v in x {
        if v.abs() > max.0 {
            max = (v.abs(), v);
        }
    }
    max.1
}

/// The minimum and maximum.
fn bounds(x: &[f32]) -> (f32, f32) {
    let mut bounds = (f32::MAX, -f32::MAX);
    for &v in x {
        bounds.0 = if v < bounds.0 { v } else { bounds.0 };
        bounds.1 = if v > bounds.1 { v } else { bounds.1 };
    }
    bounds
}

fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

fn nibbles(q: &[u8; 32], to: &mut [u8]) {
    for (i, to) in to.iter_mut().enumerate() {
        *to = (q[i] & 15) | ((q[i + 16] & 15) << 4);
    }
}

fn fifth_bits(q: &[u8; 32]) -> [u8; 4] {
    let bits = q.iter().enumerate();
    bits.fold(0_u32, |word, (i, &q)| word | (u32::from(q >> 4) & 1) << i)
        .to_le_bytes()
}

fn levels(x: &[f32], f: impl Fn(f32) -> u8) -> [u8; 32] {
    std::array::from_fn(|i| f(x[i]))
}

pub(super) fn quantize_q4_0(x: &[f32], to: &mut [u8]) {
    let d = largest_by_magnitude(x) / -8.0;
    let id = inverse(d);
    let q = levels(x, |v| ((v * id + 8.5) as i8).min(15) as u8);
    to[..2].copy_from_slice(&to_half(d));
    nibbles(&q, &mut to[2..]);
}

pub(super) fn quantize_q4_1(x: &[f32], to: &mut [u8]) {
    let (low, high) = bounds(x);
    let d = (high - low) / 15.0;
    let id = inverse(d);
    let q = levels(x, |v| (((v - low) * id + 0.5) as i8).min(15) as u8);
    to[..2].copy_from_slice(&to_half(d));
    to[2..4].copy_from_slice(&to_half(low));
    nibbles(&q, &mut to[4..]);
}

pub(super) fn quantize_q5_0(x: &[f32], to: &mut [u8]) {
    let d = largest_by_magnitude(x) / -16.0;
    let id = inverse(d);
    let q = levels(x, |v| ((v * id + 16.5) as i8).min(31) as u8);
    to[..2].copy_from_slice(&to_half(d));
    to[2..6].copy_from_slice(&fifth_bits(&q));
    nibbles(&q, &mut to[6..]);
}

pub(super) fn quantize_q5_1(x: &[f32], to: &mut [u8]) {
    let (low, high) = bounds(x);
    let d = (high - low) / 31.0;
    let id = inverse(d);
    let q = levels(x, |v| ((v - low) * id + 0.5) as u8);
    to[..2].copy_from_slice(&to_half(d));
    to[2..4].copy_from_slice(&to_half(low));
    to[4..8].copy_from_slice(&fifth_bits(&q));
    nibbles(&q, &mut to[8..]);
}

pub(super) fn quantize_q8_0(x: &[f32], to: &mut [u8]) {
    let d = largest_by_magnitude(x).abs() / 127.0;
    let id = inverse(d);
    to[..2].copy_from_slice(&to_half(d));
    for (to, &v) in to[2..].iter_mut().zip(x) {
        *to = (v * id).round() as i8 as u8;
    }
}

#[inline(always)]
pub(super) fn dequantize_q4_0(block: &[u8; 18], to: &mut [f32; 32]) {
    let d = half(block);
    for i in 0..16 {
        let q = block[2 + i];
        to[i] = (i32::from(q & 15) - 8) as f32 * d;
        to[i + 16] = (i32::from(q >> 4) - 8) as f32 * d;
    }
}

#[inline(always)]
pub(super) fn dequantize_q4_1(block: &[u8; 20], to: &mut [f32; 32]) {
    let (d, m) = (half(block), half(&block[2..]));
    for i in 0..16 {
        let q = block[4 + i];
        to[i] = f32::from(q & 15) * d + m;
        to[i + 16] = f32::from(q >> 4) * d + m;
    }
}

#[inline(always)]
fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

#[inline(always)]
pub(super) fn dequantize_q5_0(block: &[u8; 22], to: &mut [f32; 32]) {
    let d = half(block);
    let high = word(&block[2..]);
    for i in 0..16 {
        let q = u32::from(block[6 + i]);
        let a = (q & 15) | ((high >> i) & 1) << 4;
        let b = (q >> 4) | ((high >> (i + 16)) & 1) << 4;
        to[i] = (a as i32 - 16) as f32 * d;
        to[i + 16] = (b as i32 - 16) as f32 * d;
    }
}

#[inline(always)]
pub(super) fn dequantize_q5_1(block: &[u8; 24], to: &mut [f32; 32]) {
    let (d, m) = (half(block), half(&block[2..]));
    let high = word(&block[4..]);
    for i in 0..16 {
        let q = u32::from(block[8 + i]);
        let a = (q & 15) | ((high >> i) & 1) << 4;
        let b = (q >> 4) | ((high >> (i + 16)) & 1) << 4;
        to[i] = a as f32 * d + m;
        to[i + 16] = b as f32 * d + m;
    }
}

#[inline(always)]
pub(super) fn dequantize_q8_0(block: &[u8; 34], to: &mut [f32; 32]) {
    let d = half(block);
    for i in 0..32 {
        to[i] = f32::from(block[2 + i] as i8) * d;
    }
}
