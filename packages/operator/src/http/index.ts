export { operatorApp, type OperatorAppOptions } from './operator-app.js';
export { operatorTokenMin } from './access.js';
