"""One translator per dialect: which group a pod names, and what is said of that group. None knows another."""
