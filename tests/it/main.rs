//! Integration tests of Genesis.
