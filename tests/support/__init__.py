"""What tests share: no test is in here."""
