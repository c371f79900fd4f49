"""What a pair is and how it is judged; sees ops through one Protocol."""
