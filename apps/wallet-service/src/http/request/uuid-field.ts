import { z } from '@hono/zod-openapi';

/** Without flags: the OpenAPI document shows it as a pattern, which has none. */
const uuid = /^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$/;

/** The schema of a UUID of any version, upper case or lower case, in lower case afterwards. */
export const uuidField = z
  .string({ error: 'must be a UUID' })
  .regex(uuid, 'must be a UUID')
  .toLowerCase()
  .openapi({ format: 'uuid', example: '0198c5a2-7b7e-7000-8000-5d2f4a6b8c0d' });
