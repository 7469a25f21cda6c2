"""The Pusher: copy a blessed model into the push folder atomically, and decide which version serves."""
