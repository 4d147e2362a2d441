"use strict";
Lockstep.page = Lockstep.report(JSON.parse(document.getElementById("data").textContent));
