"""The modes in which a case is opened: graph, dynamic, xla, eager."""
