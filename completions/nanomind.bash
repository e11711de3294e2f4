# SPDX-License-Identifier: Apache-2.0
# Bash completion of nanomind. Model names come from the program itself.

_nanomind_models() {
  nanomind list 2>/dev/null | awk 'NR > 1 { print $1 }'
}

_nanomind() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
  local commands="run chat watch pull list show rm convert quantize join pack tokenize perplexity embed rerank bench doctor help"
  local engine="--mmproj --no-mmproj -t --threads --memory --kv-type --device --precision --isa"
  local answer="-n --max-tokens --system --temp --top-k --top-p --min-p --repeat-penalty --seed"
  answer+=" --typical-p --presence-penalty --frequency-penalty --repeat-last --dry --dry-base --dry-length --dry-window --dry-breaker --xtc --xtc-threshold --mirostat --mirostat-rate --logit-bias"
  answer+=" --image-tiles --lean --no-picture-cache"
  answer+=" --stop --json-schema --grammar --gbnf --lark --regex --ignore-eos --think-budget --draft --when-full"
  local options=
  COMPREPLY=()

  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W "$commands --help --version" -- "$current")
    return
  fi
  case $previous in
    --type) mapfile -t COMPREPLY < <(compgen -W "f16 bf16 f32 q8_0 q6_k q5_k q5_k_m q5_k_s q5_1 q5_0 q4_k q4_k_m q4_k_s q4_1 q4_0 q3_k q3_k_m q2_k" -- "$current"); return ;;
    --only) mapfile -t COMPREPLY < <(compgen -W "text vision" -- "$current"); return ;;
    -o | --output) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    --device) mapfile -t COMPREPLY < <(compgen -W "cpu" -- "$current"); return ;;
    --kv-type) mapfile -t COMPREPLY < <(compgen -W "f16 q8_0 q4_0 f32" -- "$current"); return ;;
    --precision) mapfile -t COMPREPLY < <(compgen -W "fast high" -- "$current"); return ;;
    -i | --image) mapfile -t COMPREPLY < <(compgen -W "camera:" -- "$current"; compgen -f -- "$current"); return ;;
    --mmproj) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    --camera) mapfile -t COMPREPLY < <(compgen -G "/dev/video*"); return ;;
    --when-full) mapfile -t COMPREPLY < <(compgen -W "stop slide" -- "$current"); return ;;
    --draft) mapfile -t COMPREPLY < <(compgen -W "lookup $(_nanomind_models)" -- "$current"); return ;;
    --isa) mapfile -t COMPREPLY < <(compgen -W "scalar avx2 avx512 neon dotprod" -- "$current"); return ;;
    --logits | --json-schema | --grammar | --tools | --gbnf | --lark) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    -t | --threads | -n | --max-tokens | --ctx | --memory | --system | --temp | --top-k | --top-p | --min-p | --repeat-penalty | --seed | \
      --typical-p | --presence-penalty | --frequency-penalty | --repeat-last | --dry | --dry-base | --dry-length | --dry-window | \
      --dry-breaker | --xtc | --xtc-threshold | --mirostat | --mirostat-rate | --logit-bias | --stop | --regex | --tool-choice | --logprobs | --think-budget | --image-tiles | \
      --every | --threshold | --count | \
      -p | --prefill | --decode | -r | --repetitions | --chunks) return ;;
  esac
  case $command in
    run) options="-i --image --raw --special --json --logprobs --show-thinking --tools --tool-choice --verbose --ctx $answer $engine" ;;
    watch) options="--camera --every --threshold --count --json --verbose --ctx $answer $engine" ;;
    chat) options="--verbose --ctx $answer $engine" ;;
    convert) options="-o --output --only --type -t --threads" ;;
    quantize) options="--type --pure --rule --head --embedding --report --ctx --chunks --json -t --threads" ;;
    pull) options="--verify" ;;
    pack) options=$engine ;;
    list) options="--json --architectures" ;;
    doctor | show) options="--json" ;;
    tokenize) options="--json --special --no-bos" ;;
    perplexity) options="--ctx --chunks --step --against --logits --json $engine" ;;
    embed) options="--ctx --json --base64 --npy $engine" ;;
    rerank) options="--ctx --query --top --json $engine" ;;
    bench) options="-p --prefill -n --decode -r --repetitions -i --image --isas --json $engine" ;;
    help) mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$current"); return ;;
  esac
  if [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options --help" -- "$current")
  elif [[ $command != list && $command != doctor ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_nanomind_models)" -- "$current"; compgen -f -- "$current")
  fi
}

complete -o filenames -F _nanomind nanomind
