"""Problems of opening vaults, trained with ARPO, which forks episodes where entropy rises."""
