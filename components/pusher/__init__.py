"""The Pusher: copies a blessed model into the push folder, atomically, and decides which version serves."""
