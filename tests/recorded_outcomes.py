"""What a person who reads only the reply expects of each recorded one.

A row: name of the file, outcome, billed, who rests after it, words of the reason, of the answer or of a call.
"""

from __future__ import annotations

TABLE = """
001-azure-401-error | refused | no | provider | subscription key
002-azure-404-error | refused | no | model | Resource not found
003-azure-404-error | refused | no | model | deployment
004-azure-429-error | rate_limited | no | retry | exceeded rate limit
005-deepseek-400-error | context_too_long | no | none | 1250025 tokens
006-deepseek-401-error | refused | no | provider | Authentication Fails
007-groq-400-error | http_error | maybe | none | Tool choice is required
008-groq-400-error | http_error | maybe | none | did not match schema
009-groq-404-error | refused | no | model | llama-3.3-70b-versatlie
010-groq-404-error | refused | no | model | non-existent
011-mistral-401-error | refused | no | provider | Invalid API Key
012-ollama-404-error | refused | no | model | nonexistent-model:latest
013-ollama-cloud-400-error | context_too_long | no | none | prompt too long
014-ollama-cloud-401-error | refused | no | provider | Unauthorized
015-openai-400-error | http_error | no | none | unsupported image
016-openai-400-error | http_error | no | none | Error while downloading
017-openai-400-error | http_error | no | none | Error while downloading
018-openai-400-error | http_error | no | none | messages[3]
019-openai-400-error | http_error | no | none | Missing required parameter
020-openai-400-error | http_error | no | none | Test error
021-openai-400-error | http_error | no | none | 'stop' is not supported
022-openai-400-error | http_error | no | none | does not support 'system'
023-openai-400-error | http_error | no | none | Web search options
024-openai-401-error | refused | no | provider | Incorrect API key
025-openai-401-error | refused | no | provider | Incorrect API key
026-openai-404-error | refused | no | model | gpt-5.2-proo
027-openai-404-error | refused | no | model | deprecated
028-openai-404-error | refused | no | model | non-existent-model
029-openai-404-error | refused | no | model | this-model-does-not-exist
030-openai-500-error | http_error | maybe | outage | Internal Server Error
031-openrouter-400-error | context_too_long | no | none | maximum context length
032-openrouter-401-error | refused | no | provider | Missing Authentication header
033-openrouter-401-error | refused | no | provider | No cookie auth
034-openrouter-429-error | rate_limited | no | retry | rate-limited upstream
035-perplexity-400-error | context_too_long | no | none | all messages is too long
036-perplexity-401-error | refused | no | provider | Invalid API key
037-azure-200-200-with-error | filtered | maybe | none | was filtered
038-azure-200-finish-content_filter-nullcontent | filtered | yes | none | filter
039-azure-200-finish-length | length | yes | none | Once upon a time
040-azure-200-finish-stop | answered | yes | none | 4
041-azure-200-finish-tool_calls-tools1-emptycontent | tool_calls | yes | none | file_fetch
042-azure-200-finish-tool_calls-tools1-nullcontent | tool_calls | yes | none | calculator
043-azure-200-finish-tool_calls-tools2-emptycontent | tool_calls | yes | none | best_language_to_learn
044-azure-200-finish-tool_calls-tools3-emptycontent | tool_calls | yes | none | dice_roll
045-azure-200-finish-tool_calls-tools3-nullcontent | tool_calls | yes | none | read_website
046-azure-200-stream | malformed_reply | maybe | none | event stream
047-bedrock-mantle-200-finish-stop | answered | yes | none | attributed statement
048-bedrock-mantle-200-finish-stop-reasoning | answered | yes | none | SAFE
049-cerebras-200-finish-stop | answered | yes | none | 2 + 2 = 4.
050-cerebras-200-finish-stop-reasoning | answered | yes | none | Paris
051-cerebras-200-finish-tool_calls-tools1-nullcontent | tool_calls | yes | none | final_result
052-crusoe-200-finish-stop-reasoning | answered | yes | none | sunny
053-crusoe-200-finish-tool_calls-tools1-reasoning-nullcontent | tool_calls | yes | none | get_weather
054-deepseek-200-finish-stop | answered | yes | none | 4
055-deepseek-200-finish-stop-reasoning_content | answered | yes | none | 4
056-deepseek-200-finish-tool_calls-tools1 | tool_calls | yes | none | best_language_to_learn
057-deepseek-200-finish-tool_calls-tools1-emptycontent | tool_calls | yes | none | array_params
058-deepseek-200-finish-tool_calls-tools1-reasoning_content | tool_calls | yes | none | load_capability
059-deepseek-200-finish-tool_calls-tools2 | tool_calls | yes | none | weather
060-deepseek-200-finish-tool_calls-tools2-reasoning_content | tool_calls | yes | none | roll_dice
061-deepseek-200-finish-tool_calls-tools3 | tool_calls | yes | none | dice_roll
062-gemini-compat-200-finish-stop | answered | yes | none | Noon
063-gemini-compat-200-finish-tool_calls-tools1-nullcontent | tool_calls | yes | none | get_current_time
064-gpustack-200-finish-stop-reasoning_content | answered | yes | none | previous result
065-gpustack-200-finish-tool_calls-tools1-reasoning_content-null | tool_calls | yes | none | weather
066-groq-200-finish-stop | answered | yes | none | 4
067-groq-200-finish-stop-reasoning | answered | yes | none | 4
068-groq-200-finish-tool_calls-tools1-nullcontent | tool_calls | yes | none | get_file
069-groq-200-finish-tool_calls-tools1-reasoning-nullcontent | tool_calls | yes | none | get_something_by_name
070-groq-200-finish-tool_calls-tools2-nullcontent | tool_calls | yes | none | final_result
071-heroku-200-finish-stop | answered | yes | none | Paris
072-huggingface-200-finish-length | length | yes | none | <think>
073-huggingface-200-finish-stop | answered | yes | none | potato
074-huggingface-200-finish-tool_calls-tools1-emptycontent | tool_calls | yes | none | get_weather
075-huggingface-200-finish-tool_calls-tools1-nullcontent | tool_calls | yes | none | final_result
076-huggingface-200-finish-tool_calls-tools2-emptycontent | tool_calls | yes | none | final_result
077-local-8000-200-finish-length | length | yes | none | <|im_start|>
078-local-8000-200-finish-stop | answered | yes | none | data scientist
079-mistral-200-finish-stop | answered | yes | none | capital of France
080-mistral-200-finish-stop-listcontent | answered | yes | none | 4
081-mistral-200-finish-tool_calls-tools1 | tool_calls | yes | none | image_fetch
082-mistral-200-finish-tool_calls-tools1-emptycontent | tool_calls | yes | none | get_image
083-mistral-200-finish-tool_calls-tools2-emptycontent | tool_calls | yes | none | weather
084-mistral-200-finish-tool_calls-tools3-emptycontent | tool_calls | yes | none | dice_roll
085-ollama-200-finish-stop | answered | yes | none | Hello
086-ollama-200-finish-stop-reasoning | answered | yes | none | dice rolls
087-ollama-200-finish-tool_calls-tools1-reasoning-emptycontent | tool_calls | yes | none | weather
088-ollama-200-finish-tool_calls-tools2-reasoning-emptycontent | tool_calls | yes | none | best_language_to_learn
089-ollama-200-finish-tool_calls-tools3-reasoning-emptycontent | tool_calls | yes | none | dice_roll
090-ollama-cloud-200-finish-stop | answered | yes | none | test data
091-ollama-cloud-200-finish-stop-reasoning | answered | yes | none | 1, 2, 3.
092-ollama-cloud-200-finish-tool_calls-tools1-emptycontent | tool_calls | yes | none | dice_roll
093-ollama-cloud-200-finish-tool_calls-tools1-reasoning-emptycon | tool_calls | yes | none | weather
094-openai-200-finish-function_call-legacyfn-nullcontent | malformed_reply | yes | none | function_call
095-openai-200-finish-length | length | yes | none | undulating
096-openai-200-finish-stop | answered | yes | none | Hi there
097-openai-200-finish-stop-refusal-nullcontent | filtered | yes | none | very sorry
098-openai-200-finish-stop-tools1-nullcontent | tool_calls | yes | none | ScoreOutput
099-openai-200-finish-tool_calls-tools1-nullcontent | tool_calls | yes | none | get_current_weather
100-openai-200-finish-tool_calls-tools2-nullcontent | tool_calls | yes | none | get_current_weather
101-openai-200-finish-tool_calls-tools3-nullcontent | tool_calls | yes | none | counting_tool
102-openai-200-stream | malformed_reply | maybe | none | event stream
103-openrouter-200-finish-length | length | yes | none | step by step
104-openrouter-200-finish-none | answered | yes | none | Paris
105-openrouter-200-finish-stop | answered | yes | none | Alice
106-openrouter-200-finish-stop-nullcontent | empty | yes | none | blank
107-openrouter-200-finish-stop-reasoning | answered | yes | none | 5 + 3 = 8
108-openrouter-200-finish-tool_calls-tools1 | tool_calls | yes | none | find_education_content
109-openrouter-200-finish-tool_calls-tools1-emptycontent | tool_calls | yes | none | divide
110-openrouter-200-finish-tool_calls-tools1-nullcontent | tool_calls | yes | none | pdf_fetch
111-openrouter-200-finish-tool_calls-tools1-reasoning-nullconten | tool_calls | yes | none | reasoning_weather
112-openrouter-200-finish-tool_calls-tools2-nullcontent | tool_calls | yes | none | best_language_to_learn
113-openrouter-200-finish-tool_calls-tools3-nullcontent | tool_calls | yes | none | dice_roll
114-perplexity-200-finish-stop | answered | yes | none | 2 + 2 = 4
115-snowflake-200-finish-none-legacyfn | answered | yes | none | 4
116-snowflake-200-finish-none-tools1-legacyfn | tool_calls | yes | none | get_weather
117-snowflake-200-finish-none-tools1-legacyfn-emptycontent | tool_calls | yes | none | get_weather
118-snowflake-200-finish-stop-legacyfn | answered | yes | none | 4
119-together-200-finish-eos | answered | yes | none | OpenTelemetry
120-together-200-finish-stop | answered | yes | none | Confidential
121-together-200-finish-tool_calls-tools1-nullcontent | tool_calls | yes | none | get_current_weather
122-zai-200-finish-stop-reasoning_content | answered | yes | none | 2 + 2 = 4
125-openrouter-402-can-only-afford | refused | no | provider | can only afford
127-openai-403-region | refused | no | provider | not supported
131-groq-413-tpm | context_too_long | no | none | tokens per minute
132-mistral-422-extra-forbidden-field | http_error | no | none | body.max_completion_tokens: Extra inputs
136-openai-429-insufficient-quota | refused | no | provider | exceeded your current quota
138-openrouter-429-upstream | rate_limited | no | retry | rate-limited upstream
141-openai-502-cloudflare-html | http_error | maybe | outage | Bad Gateway
145-openrouter-200-error-in-body | http_error | maybe | outage | Provider returned error
"""

Row = tuple[str, str, str, str]
RECORDED: dict[str, Row] = {
    name: (outcome, billed, rests, words)
    for name, outcome, billed, rests, words in (line.split(" | ") for line in TABLE.strip().splitlines())
}
