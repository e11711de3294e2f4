# SPDX-License-Identifier: Apache-2.0
# Fish completion of nanomind. Model names come from the program itself.

function __nanomind_models
    nanomind list 2>/dev/null | awk 'NR > 1 { print $1 }'
end

set -l commands run chat pull list show rm pack tokenize perplexity embed rerank bench doctor help
set -l with_engine run chat pack perplexity embed rerank bench
set -l with_answer run chat

complete -c nanomind -n "not __fish_seen_subcommand_from $commands" -f -l help -d 'Help'
complete -c nanomind -n "not __fish_seen_subcommand_from $commands" -f -l version -d 'Version'
complete -c nanomind -n "not __fish_seen_subcommand_from $commands" -f -a run -d 'Answer one question, or chat'
complete -c nanomind -n "not __fish_seen_subcommand_from $commands" -f -a chat -d 'Talk with a model'
complete -c nanomind -n "not __fish_seen_subcommand_from $commands" -f -a pull -d 'Fetch a model'
complete -c nanomind -n "not __fish_seen_subcommand_from $commands" -f -a list -d 'Show the models'
complete -c nanomind -n "not __fish_seen_subcommand_from $commands" -f -a show -d 'Tell about a model'
complete -c nanomind -n "not __fish_seen_subcommand_from $commands" -f -a rm -d 'Remove models'
complete -c nanomind -n "not __fish_seen_subcommand_from $commands" -f -a pack -d 'Prepare weights for quick starts'
complete -c nanomind -n "not __fish_seen_subcommand_from $commands" -f -a tokenize -d 'Print token ids'
complete -c nanomind -n "not __fish_seen_subcommand_from $commands" -f -a perplexity -d 'Measure how well a model predicts a text'
complete -c nanomind -n "not __fish_seen_subcommand_from $commands" -f -a embed -d 'Print the vectors of texts'
complete -c nanomind -n "not __fish_seen_subcommand_from $commands" -f -a rerank -d 'Order documents by a query'
complete -c nanomind -n "not __fish_seen_subcommand_from $commands" -f -a bench -d 'Measure speed'
complete -c nanomind -n "not __fish_seen_subcommand_from $commands" -f -a doctor -d 'Tell what this machine has and what is missing'
complete -c nanomind -n "not __fish_seen_subcommand_from $commands" -f -a help -d 'Tell about a command'

complete -c nanomind -n '__fish_seen_subcommand_from run chat pull show rm pack tokenize perplexity embed rerank bench' -a '(__nanomind_models)' -d 'Model'
complete -c nanomind -n '__fish_seen_subcommand_from help' -f -a "$commands"

complete -c nanomind -n "__fish_seen_subcommand_from $with_engine" -x -s t -l threads -d 'Threads that compute'
complete -c nanomind -n "__fish_seen_subcommand_from $with_engine" -x -l memory -d 'Most memory to use'
complete -c nanomind -n "__fish_seen_subcommand_from $with_engine" -x -l device -a cpu -d 'Where to compute'
complete -c nanomind -n "__fish_seen_subcommand_from $with_engine" -x -l precision -a 'fast high' -d 'Of reading prompts'
complete -c nanomind -n "__fish_seen_subcommand_from $with_engine" -x -l isa -a 'scalar avx2 avx512 neon dotprod' -d 'Instruction set'
complete -c nanomind -n '__fish_seen_subcommand_from run chat perplexity' -x -l ctx -d 'Tokens of context'

complete -c nanomind -n "__fish_seen_subcommand_from $with_answer" -x -s n -l max-tokens -d 'Stop after so many tokens'
complete -c nanomind -n "__fish_seen_subcommand_from $with_answer" -x -l system -d 'System message'
complete -c nanomind -n "__fish_seen_subcommand_from $with_answer" -x -l temp -d 'Temperature'
complete -c nanomind -n "__fish_seen_subcommand_from $with_answer" -x -l top-k -d 'Choose among the likeliest'
complete -c nanomind -n "__fish_seen_subcommand_from $with_answer" -x -l top-p -d 'Choose among the likeliest that add up to'
complete -c nanomind -n "__fish_seen_subcommand_from $with_answer" -x -l min-p -d 'Drop the unlikely'
complete -c nanomind -n "__fish_seen_subcommand_from $with_answer" -x -l repeat-penalty -d 'Make recent tokens less likely'
complete -c nanomind -n "__fish_seen_subcommand_from $with_answer" -x -l seed -d 'Draw the same answer'
complete -c nanomind -n "__fish_seen_subcommand_from $with_answer" -f -l verbose -d 'Tell more'

complete -c nanomind -n '__fish_seen_subcommand_from run' -f -l raw -d 'No chat template'
complete -c nanomind -n '__fish_seen_subcommand_from run tokenize' -f -l special -d 'Read control tokens'
complete -c nanomind -n '__fish_seen_subcommand_from tokenize' -f -l no-bos -d 'No beginning token'
complete -c nanomind -n '__fish_seen_subcommand_from run list show tokenize perplexity embed rerank bench doctor' -f -l json -d 'Print JSON'
complete -c nanomind -n '__fish_seen_subcommand_from embed' -f -l base64 -d 'Print JSON with base64'
complete -c nanomind -n '__fish_seen_subcommand_from embed' -f -l npy -d 'Print NumPy format'
complete -c nanomind -n '__fish_seen_subcommand_from rerank' -x -l query -d 'What is asked'
complete -c nanomind -n '__fish_seen_subcommand_from rerank' -x -l top -d 'Print so many'
complete -c nanomind -n '__fish_seen_subcommand_from perplexity' -x -l chunks -d 'Chunks to measure'
complete -c nanomind -n '__fish_seen_subcommand_from perplexity' -x -l step -d 'Tokens per step'
complete -c nanomind -n '__fish_seen_subcommand_from perplexity' -r -l logits -d 'Write logits to'
complete -c nanomind -n '__fish_seen_subcommand_from bench' -x -s p -l prefill -d 'Tokens of the prompt'
complete -c nanomind -n '__fish_seen_subcommand_from bench' -x -s n -l decode -d 'Tokens of the answer'
complete -c nanomind -n '__fish_seen_subcommand_from bench' -x -s r -l repetitions -d 'Turns'
complete -c nanomind -n '__fish_seen_subcommand_from bench' -f -l isas -d 'The peak of each instruction set too'
