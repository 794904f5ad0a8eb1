// Command snowmelt moves ServiceNow tables into Kafka, exactly once.
package main

import (
	"os"

	"snowmelt/cmd"
)

func main() { os.Exit(cmd.Execute(os.Args[1:], os.Stdout, os.Stderr)) }
