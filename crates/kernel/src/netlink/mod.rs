//! Links, their events and their features, over netlink.
