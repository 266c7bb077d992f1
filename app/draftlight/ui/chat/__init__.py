"""The chat screen: conversation list, transcript with coloured tokens, composer, figures."""
