//! Property tables, name rules, health, and how things print
