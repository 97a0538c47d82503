//! Why an entry is stale, in words: the difference of two sets of key inputs, field by field.
