package main

import (
	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/token"
)

func providerNames() []string {
	return []string{aws.ProviderName, azure.ProviderName, gcp.ProviderName, token.ProviderName, exchange.ProviderName}
}

// completeValues offers the shell the values of flags that have few, instead of the names of files.
func completeValues(commands []*cobra.Command) error {
	outputs := map[string][]string{"token": {"table", "json", "env"}, "doctor": {"text", "json"}, "version": {"text", "json"}}
	for _, cmd := range commands {
		for flag, values := range map[string][]string{"provider": providerNames(), "output": outputs[cmd.Name()]} {
			if cmd.Flags().Lookup(flag) == nil {
				continue
			}
			err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
			if err != nil {
				return err
			}
		}
	}
	return nil
}
