//! GEOM ELI: encrypted providers.
