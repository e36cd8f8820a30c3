//! The system scenarios, and checks beside other programs; see the files beside this folder.
