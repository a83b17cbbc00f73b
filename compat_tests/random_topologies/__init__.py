"""Topologies nobody thought of: small ones at random, held to the reference interpreter."""
