//! Workspace-wide checks and the system scenarios; see the files beside this folder.
