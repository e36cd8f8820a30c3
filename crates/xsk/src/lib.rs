//! AF_XDP rings and sockets, and the packet socket that transmits.
