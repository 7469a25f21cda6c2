"""Training as a job of Kubernetes or Vertex AI: its manifest, and the Trainer's part while the job runs elsewhere."""
