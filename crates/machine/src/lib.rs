//! The providers that commands find by name: of this host, or of a machine of emulated drives.
