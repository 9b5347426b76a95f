//! Space: range trees, metaslabs, allocation classes
