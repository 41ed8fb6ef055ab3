"""The same questions answered by sampling and training at finite size. Never imports theory."""
