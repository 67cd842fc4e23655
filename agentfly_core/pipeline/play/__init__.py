"""Play problems outside of training: single plays, chats, exports, imports and a served policy."""
