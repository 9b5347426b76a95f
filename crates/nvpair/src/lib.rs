//! nvlists: XDR and native encodings
