//! The Metal Shading Language front end: lexing, reflection, strictness checks and the rewrite to C++.
