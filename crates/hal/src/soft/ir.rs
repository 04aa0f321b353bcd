//! Barrier fission on LLVM IR text.
