"""End-to-end tests of Ebb with real Kubernetes programs; `make e2e` runs them."""
