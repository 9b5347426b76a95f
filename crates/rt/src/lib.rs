//! Clock, threads, locks, task queues and randomness, in real and in simulated time
