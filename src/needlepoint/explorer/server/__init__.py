"""The address: `guard` lets in who may ask, `answers` streams what workers say, `app` joins them, `serving` opens."""
