//! ZAP objects: names to values
