//! Many runs at once.
