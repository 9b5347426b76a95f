//! Every on-disk structure of OpenZFS, declared once
