/* The schemas of /openapi.json: one JSON object, name to schema, from core/api/schemas.json. Request fields are those of the tables in core/domain:
 * change both together. */
#ifndef MG_API_OPENAPI_SCHEMAS_H
#define MG_API_OPENAPI_SCHEMAS_H

extern const char mg_openapi_schemas[];

#endif
