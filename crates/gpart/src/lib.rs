//! Partition tables: GPT and MBR.
