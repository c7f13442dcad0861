package config

import "oncemore/internal/strictyaml"

type (
	node     = strictyaml.Node
	fields   = strictyaml.Fields
	problems = strictyaml.Problems
	// Pos is where something stands in the file.
	Pos = strictyaml.Pos
	// Problem is one thing wrong in the file.
	Problem = strictyaml.Problem
)
