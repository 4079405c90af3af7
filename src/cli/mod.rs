//! What users type. Wires all rooms together; nobody imports it.
