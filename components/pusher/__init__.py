"""Pusher: puts a blessed model where a model server finds it, whole or not at all."""
