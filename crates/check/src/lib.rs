//! Reading a whole pool and saying what is wrong with it
