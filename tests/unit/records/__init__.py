"""The record batch, judged against an independent implementation and against bytes kept here."""
