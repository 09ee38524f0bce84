export {
  HttpServer,
  type HttpServerOptions,
  type ServedExchange,
  type ServerLimits,
  type WebHandler,
} from './http-server.js';
export { Draining } from './draining.js';
export type { HeaderLimits } from './refused-connection.js';
