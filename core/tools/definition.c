/* What a model is told of each tool. The bytes are part of the cached prefix of every request: change them only on purpose. */
#include "tools/tools.h"

static const struct {
    const char *name, *json;
} DEFINITIONS[] = {
    {"bash",
     "{\"name\":\"bash\",\"description\":\"Run a command in a persistent shell (bash, else sh) in the sandbox. The "
     "working folder, variables, "
     "functions and background jobs stay from call to call; shell options are reset after each. Output and errors come "
     "together, the last 100 KiB "
     "are kept. Standard input is empty. A status other than 0 is an error that names it. After timeout_ms (default "
     "120000) what the command "
     "started is ended.\",\"input_schema\":{\"type\":\"object\",\"properties\":{"
     "\"command\":{\"type\":\"string\",\"description\":\"The command to run. Required unless restart is true.\"},"
     "\"restart\":{\"type\":\"boolean\",\"description\":\"True, alone: end the shell and its background jobs and start "
     "a new one.\"},"
     "\"timeout_ms\":{\"type\":\"integer\",\"description\":\"Limit in milliseconds, at most 3600000. 0 or absent: "
     "120000.\"}}}}"},
    {"read", "{\"name\":\"read\",\"description\":\"Read a text file, or look at an image (PNG, JPEG, GIF, WebP). "
             "Without view_range a text file may have "
             "at most 256 KiB.\",\"input_schema\":{\"type\":\"object\",\"properties\":{"
             "\"file_path\":{\"type\":\"string\",\"description\":\"Path, relative to the working folder or absolute. A "
             "path in double quotes is read with "
             "the escapes in which glob and grep show unusual names.\"},"
             "\"view_range\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":2,"
             "\"description\":\"[first, last] line, counted "
             "from 1, both included; last <= 0: to the end.\"}},\"required\":[\"file_path\"]}}"},
    {"write", "{\"name\":\"write\",\"description\":\"Write a file, replacing what it held. Missing parent folders are "
              "made.\",\"input_schema\":{\"type\":"
              "\"object\",\"properties\":{\"file_path\":{\"type\":\"string\",\"description\":\"Path, relative to the "
              "working folder or absolute.\"},"
              "\"content\":{\"type\":\"string\",\"description\":\"The whole "
              "content.\"}},\"required\":[\"file_path\",\"content\"]}}"},
    {"edit",
     "{\"name\":\"edit\",\"description\":\"Replace a text in a file of at most 256 KiB. Both texts are literal. "
     "old_string must occur exactly once, "
     "unless replace_all is true.\",\"input_schema\":{\"type\":\"object\",\"properties\":{"
     "\"file_path\":{\"type\":\"string\",\"description\":\"Path, relative to the working folder or absolute.\"},"
     "\"old_string\":{\"type\":\"string\",\"description\":\"The text to replace, exactly as in the file.\"},"
     "\"new_string\":{\"type\":\"string\",\"description\":\"The text to put in its place.\"},"
     "\"replace_all\":{\"type\":\"boolean\",\"description\":\"Replace every occurrence.\"}},"
     "\"required\":[\"file_path\",\"old_string\",\"new_string\"]}}"},
    {"glob", "{\"name\":\"glob\",\"description\":\"Find files by name: up to 200 absolute paths, newest first. * and ? "
             "match within a name, ** any number of "
             "folders, [a-z] and {a,b} choices; names that start with a dot match too. A pattern that ends in / finds "
             "folders. .git and node_modules are "
             "skipped, links are not followed.\",\"input_schema\":{\"type\":\"object\",\"properties\":{"
             "\"pattern\":{\"type\":\"string\",\"description\":\"Pattern such as **/*.c, relative to path.\"},"
             "\"path\":{\"type\":\"string\",\"description\":\"Folder to search. Default: the working "
             "folder.\"}},\"required\":[\"pattern\"]}}"},
    {"grep", "{\"name\":\"grep\",\"description\":\"Search file contents for a POSIX extended regular expression; lines "
             "as path:line:text, the first 100 KiB. "
             ".git and node_modules are skipped, links are not "
             "followed.\",\"input_schema\":{\"type\":\"object\",\"properties\":{"
             "\"pattern\":{\"type\":\"string\",\"description\":\"Extended regular expression; \\\\d, \\\\w, \\\\s and "
             "\\\\b work as well.\"},"
             "\"path\":{\"type\":\"string\",\"description\":\"File or folder to search. Default: the working "
             "folder.\"}},\"required\":[\"pattern\"]}}"},
};

struct mg_sv mg_tool_definition(struct mg_sv name)
{
    for (size_t i = 0; i < sizeof(DEFINITIONS) / sizeof(DEFINITIONS[0]); i++)
        if (mg_sv_eqz(name, DEFINITIONS[i].name))
            return mg_sv_of(DEFINITIONS[i].json);
    return MG_SV("");
}
